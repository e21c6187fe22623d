"""Sign-in with OpenID Connect: the provider's discovery document, its keys, the exchange of codes, and ID tokens."""
