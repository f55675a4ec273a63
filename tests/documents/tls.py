"""An S3 server at https://s3.example.org: takes TLS off, and passes bytes on to the server at PORT of loopback.

tls.py CERTIFICATE KEY PORT
"""

import socket
import ssl
import sys
import threading


def pump(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(client, port):
    try:
        with context.wrap_socket(client, server_side=True) as outer, socket.create_connection(("127.0.0.1", port)) as inner:
            answers = threading.Thread(target=pump, args=(inner, outer), daemon=True)
            answers.start()
            pump(outer, inner)
            answers.join()
    except OSError:
        pass


certificate, key, port = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
listener = socket.create_server(("127.0.0.1", 443), backlog=128)
while True:
    client, _ = listener.accept()
    threading.Thread(target=serve, args=(client, int(port)), daemon=True).start()
