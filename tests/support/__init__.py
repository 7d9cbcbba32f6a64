"""What tests share. Look here before writing a helper.

- `waiting`: `wait_until` a condition holds, with a deadline and a message
- `scripted_server`: `ScriptedBroker` answers from logs in memory and fails on demand; `TcpTarget`
  is plain TCP; `receive_exactly`, `receive_all`
- `memory_deployment`: scripted brokers with a registry in memory, for consumers
- `in_process_broker`: the real broker on a thread, for tests that reach into it
- `logs`, `faulty_files`: the broker's logs on a temporary directory, on a disk that fails
- `brokers`, `commands`, `members`, `zookeeper`: real processes
- `clusters`: brokers in one ZooKeeper with numbered messages; `mirrors`: mirrors between two;
  `audits`: the audit's service and command
- `raw_requests`: requests and responses byte by byte, without our codec
- `stored`: what brokers have on disk, read without our code for logs
- `registries`: a schema registry without a socket; `access_lines`: lines of web access logs
- `registry_contract`, `group_simulation`, `original_member`: rules of the coordination registry; a
  consumer group in one thread; a group member of 0.7
"""
