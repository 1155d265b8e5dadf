"""What runs and grades notebooks. Chapters never import it, and it knows no chapter by name."""
