// Packets of a call through a relay, each compared: rtpengine (by its NG protocol) or osmo-mgw (by
// MGCP). Prints packets a second.
import dgram from 'node:dgram';

const COUNT = 20000, IN_FLIGHT = 8;
const [relay] = process.argv.slice(2);

const socket = () => new Promise((bound) => {
  const made = dgram.createSocket('udp4');
  made.bind(0, '127.0.0.1', () => bound(made));
});

const control = await socket();
const asked = (port, text) => new Promise((answered, failed) => {
  const timer = setTimeout(() => failed(new Error(`no answer to ${text.split('\r\n')[0]}`)), 5000);
  control.once('message', (bytes) => { clearTimeout(timer); answered(bytes.toString('latin1')); });
  control.send(text, port, '127.0.0.1');
});

const description = (port) => `v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n`
  + `m=audio ${port} RTP/AVP 8\r\na=rtpmap:8 PCMA/8000\r\na=ptime:20\r\n`;
const portOf = (answer) => Number(/m=audio (\d+)/.exec(answer)[1]);

const bencoded = (value) => typeof value === 'string' ? `${value.length}:${value}`
  : `d${Object.keys(value).sort().map((key) => bencoded(key) + bencoded(value[key])).join('')}e`;

// Each opens a call between two ports, and returns the relay's port for the first, and how it ends.
const relays = {
  async rtpengine(from, to) {
    // The cookie tells a new command from one that is sent again.
    let cookie = 0;
    const ask = (command) => asked(2223, `${++cookie} ${bencoded({ 'call-id': 'call', 'from-tag': 'a', ...command })}`);
    await ask({ command: 'offer', sdp: description(from) });
    const answer = await ask({ command: 'answer', 'to-tag': 'b', sdp: description(to) });
    return { port: portOf(answer), end: () => ask({ command: 'delete' }), ended: /created/ };
  },
  async mgcp(from, to) {
    let number = 0;
    const ask = (verb, text) => asked(2427, `${verb} ${++number} rtpbridge/1@mgw MGCP 1.0\r\nC: 1\r\n${text}`);
    const connect = (port) => ask('CRCX', `L: p:20, a:PCMA\r\nM: sendrecv\r\n\r\n${description(port)}`);
    const first = await connect(from);
    await connect(to);
    return { port: portOf(first), end: () => ask('DLCX', ''), ended: /^250|^200/ };
  },
};

const caller = await socket(), callee = await socket();
const call = await relays[relay](caller.address().port, callee.address().port);

const packet = (number) => {
  const bytes = Buffer.alloc(172, number & 255);
  bytes.writeUInt16BE(0x8008, 0);
  bytes.writeUInt16BE(number & 65535, 2);
  bytes.writeUInt32BE(number * 160, 4);
  bytes.writeUInt32BE(7, 8);
  return bytes;
};

const relayed = new Promise((all, failed) => {
  let sent = 0, got = 0;
  const timer = setTimeout(() => failed(new Error(`${got} of ${sent} packets came`)), 20000);
  const send = () => {
    while (sent < COUNT && sent < got + IN_FLIGHT) caller.send(packet(sent++), call.port, '127.0.0.1');
  };
  callee.on('message', (bytes) => {
    // The relay opens the way through a firewall with a packet of its own.
    if (bytes.length < 12) return;
    if (!bytes.equals(packet(got))) failed(new Error(`packet ${got} is another: ${bytes.toString('hex')}`));
    got += 1;
    if (got === COUNT) { clearTimeout(timer); all(); } else send();
  });
  send();
});
const began = process.hrtime.bigint();
await relayed;
console.log(`figure ${Math.round(COUNT * 1e9 / Number(process.hrtime.bigint() - began))}`);
const ending = await call.end();
if (!call.ended.test(ending)) throw new Error(ending);
process.exit(0);
