"""The ledger's books: rules that never break, who uses what, and how large a request still fits."""
