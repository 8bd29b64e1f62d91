"""``cobalt view``: files of trajectories as one HTML page that needs no server and no network."""
