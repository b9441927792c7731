"""Durable records in LMDB behind one small interface."""
