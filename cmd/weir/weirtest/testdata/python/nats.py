"""A stand-in for nats-py where that cannot be installed: as much of it as the documents use, on a plain socket."""

import asyncio
import json
import secrets
from urllib.parse import urlparse


class Msg:
    def __init__(self, subject, reply, headers, data):
        self.subject, self.reply, self.headers, self.data = subject, reply, headers, data


class Subscription:
    def __init__(self):
        self.queue = asyncio.Queue()

    async def next_msg(self, timeout):
        return await asyncio.wait_for(self.queue.get(), timeout)


class Client:
    def __init__(self, reader, writer):
        self.reader, self.writer, self.subs = reader, writer, {}
        self.task = None

    def new_inbox(self):
        return "_INBOX." + secrets.token_hex(11)

    async def subscribe(self, subject):
        sid, sub = str(len(self.subs) + 1), Subscription()
        self.subs[sid] = sub
        self.writer.write(f"SUB {subject} {sid}\r\n".encode())
        await self.writer.drain()
        return sub

    async def request(self, subject, payload, timeout, headers):
        inbox = self.new_inbox()
        answers = await self.subscribe(inbox)
        head = "NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
        head = head.encode()
        self.writer.write(f"HPUB {subject} {inbox} {len(head)} {len(head) + len(payload)}\r\n".encode() + head + payload + b"\r\n")
        await self.writer.drain()
        return await answers.next_msg(timeout)

    async def read(self):
        while line := await self.reader.readline():
            words = line.decode().split()
            if words[:1] == ["PING"]:
                self.writer.write(b"PONG\r\n")
            elif words[:1] in (["MSG"], ["HMSG"]):
                await self.take(words)
            elif words[:1] == ["-ERR"]:
                raise RuntimeError(line.decode())

    async def take(self, words):
        total, size = int(words[-1]), int(words[-2]) if words[0] == "HMSG" else 0
        body = (await self.reader.readexactly(total + 2))[:total]
        headers = dict(h.split(": ", 1) for h in body[:size].decode().split("\r\n")[1:] if ": " in h)
        self.subs[words[2]].queue.put_nowait(Msg(words[1], "", headers, body[size:]))

    async def close(self):
        self.task.cancel()
        self.writer.close()


async def connect(url):
    at = urlparse(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    await reader.readline()  # INFO
    writer.write(b"CONNECT " + json.dumps({"verbose": False, "headers": True, "no_responders": True}).encode() + b"\r\nPING\r\n")
    while (await reader.readline()).strip() != b"PONG":
        pass
    client = Client(reader, writer)
    client.task = asyncio.create_task(client.read())
    return client
