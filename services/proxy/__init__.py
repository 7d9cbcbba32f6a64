"""The TCP proxy: load balancer of the embedded deployment, wide-area link, fault injector."""
