"""One file an operator: arguments, cases, laws, variants, structure."""
