"""A store on a mica server, over HTTP."""
