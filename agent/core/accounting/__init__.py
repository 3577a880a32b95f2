"""The ledger's books: rules that never break, what each pod uses, and how large a request still fits."""
