"""What commands print: the objects of ``-o json`` with their schemas, and in ``view`` pages and tables for people."""
