"""How the tables came to be: Alembic scripts, applied forward only when slurmdbd starts."""
