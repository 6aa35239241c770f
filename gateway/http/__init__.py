"""The client's side: server, routes, rendering."""
