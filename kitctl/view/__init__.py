"""What a person sees: tables, a job's page, progress, JSON. Takes states, returns or prints text; asks nobody.

``rich`` is imported here alone, and only by ``live``: plain text must be fast, and the same in a pipe.
"""
