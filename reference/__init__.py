"""What the answer is: one readable pure-torch function an operator."""
