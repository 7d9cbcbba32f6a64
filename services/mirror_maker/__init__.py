"""The mirror maker: copies topics from the brokers of one cluster to those of another."""
