"""The user's code that travels with a job: the working folder, requirements, and what must not be in them."""
