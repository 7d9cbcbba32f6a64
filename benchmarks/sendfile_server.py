"""The ceiling for a fetch: a process that answers each 4-byte request with sendfile, no more.

`python -m benchmarks.sendfile_server FILE ANSWER_BYTES` prints its port, serves one connection;
after the last whole answer in the file it begins again.
"""

import os
import socket
import sys


def main() -> None:
    path, answer_bytes = sys.argv[1], int(sys.argv[2])
    with socket.create_server(("127.0.0.1", 0)) as server, open(path, "rb") as file:
        print(server.getsockname()[1], flush=True)
        peer, _ = server.accept()
        size = os.fstat(file.fileno()).st_size
        position = 0
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while peer.recv(4):
                if position + answer_bytes > size:
                    position = 0
                left = answer_bytes
                while left:
                    done = os.sendfile(peer.fileno(), file.fileno(), position, left)
                    position += done
                    left -= done


if __name__ == "__main__":
    main()
