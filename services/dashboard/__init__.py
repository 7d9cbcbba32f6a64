"""The dashboard: both datacenters live in a browser (docs/dashboard.md).

sampling/ observes processes and ZooKeepers once a second, rows/ turns what was observed into
tables, changes.py numbers what changed, routes.py serves it to the browser's modules in static/.
"""
