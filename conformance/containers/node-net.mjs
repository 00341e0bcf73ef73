// Node's own servers and files, checked: connections that send and receive, and files. Newer
// releases give their ring only changes of epoll's set. Prints requests a second.
import fs from 'node:fs/promises';
import http from 'node:http';

const CLIENTS = 32, REQUESTS = 200;
const body = (n) => Buffer.alloc(1000 + (n * 977) % 20000, n & 255);

const server = http.createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  response.end(Buffer.concat(parts));
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const { port } = server.address();

const echoed = (agent, sent) => new Promise((done, failed) => {
  const request = http.request({ agent, port, host: '127.0.0.1', method: 'POST' }, async (response) => {
    const parts = [];
    for await (const part of response) parts.push(part);
    done(Buffer.concat(parts));
  });
  request.on('error', failed);
  request.end(sent);
});

const client = async (id) => {
  // Every other client connects anew for each request.
  const agent = new http.Agent({ keepAlive: id % 2 === 0, maxSockets: 1 });
  for (let n = 0; n < REQUESTS; n++) {
    const sent = body(id * REQUESTS + n);
    if (!(await echoed(agent, sent)).equals(sent)) throw new Error(`client ${id}, request ${n}`);
  }
  agent.destroy();
};

const file = async (id) => {
  const name = `file${id}`;
  for (let n = 0; n < 20; n++) {
    await fs.writeFile(name, body(n));
    if (!(await fs.readFile(name)).equals(body(n))) throw new Error(name);
  }
  await fs.unlink(name);
};

const began = process.hrtime.bigint();
await Promise.all([...Array(CLIENTS).keys()].map(client));
console.log(`figure ${Math.round(CLIENTS * REQUESTS * 1e9 / Number(process.hrtime.bigint() - began))}`);
await Promise.all([...Array(16).keys()].map(file));
server.close();
console.log(`Node ${process.versions.node}, libuv ${process.versions.uv}`);
console.log('all well');
