"""Who a request comes from: keys, tokens and providers, and what each of them may do."""
