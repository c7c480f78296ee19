"""Format states as text: tables, a job's page, progress. Makes no requests.

Only ``live`` imports ``rich``: plain text must be fast, and the same in a pipe.
"""
