"""Accounting: finished attempts in SQL, and the questions that `sacct` asks.

Facts lie in the controller's outbox until `slurmdbd` (main.py) has stored them; SQL is a
projection of them. SQLAlchemy is imported by database.py and schema.py only: importing it costs a
third of a second.
"""
