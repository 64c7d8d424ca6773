"""What people read: the tolerance report of a run."""
