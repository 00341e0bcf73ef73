# npm: packs a package and installs it elsewhere, with its install script; node's workers and children.
. "$(dirname "$0")/lib.sh" "$1" "$2"
export HOME=$PWD npm_config_cache=$PWD/cache npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
mkdir package user
cat > package/package.json <<'J'
{ "name": "small", "version": "1.2.3", "main": "index.js", "bin": { "small": "cli.js" }, "scripts": { "install": "node install.js" } }
J
echo 'module.exports = (a, b) => a + b' > package/index.js
printf '#!/usr/bin/env node\nconsole.log("cli", require("./index.js")(1, 2), process.argv.slice(2).join(" "))\n' > package/cli.js
echo 'require("fs").writeFileSync("installed.txt", "yes")' > package/install.js
(cd package && npm pack --silent --pack-destination ..)
cd user
npm init -y --silent > /dev/null
outcome npm install --silent --foreground-scripts=false ../small-1.2.3.tgz
outcome cat node_modules/small/installed.txt
outcome npm ls --parseable=false --depth=0 --json=false --omit=peer --package-lock-only --silent
outcome npx --no-install small a b
cat > work.mjs <<'J'
import { Worker } from 'node:worker_threads'; import { execFileSync, spawn, fork } from 'node:child_process'; import fs from 'node:fs/promises'; import http from 'node:http'; import { once } from 'node:events';
const w = new Worker('require("worker_threads").parentPort.postMessage(6 * 7)', { eval: true }); console.log('worker', (await once(w, 'message'))[0]);
console.log('child', execFileSync('sh', ['-c', 'echo $0 $1', 'a', 'b']).toString().trim());
const s = spawn('sh', ['-c', 'cat; exit 3']); s.stdin.end('data'); let got = ''; s.stdout.on('data', d => got += d); console.log('spawn', (await once(s, 'close'))[0], got);
await Promise.all([...Array(50).keys()].map(i => fs.writeFile('f' + i, String(i)))); let sum = 0; for (let i = 0; i < 50; i++) sum += Number(await fs.readFile('f' + i, 'utf8')); console.log('files', sum);
const server = http.createServer((q, r) => r.end('hello ' + q.url)).listen(0, '127.0.0.1'); await once(server, 'listening');
const answers = await Promise.all([...Array(20).keys()].map(async i => { const [r] = await once(http.get({ port: server.address().port, path: '/' + i, agent: false }), 'response'); let t = ''; for await (const c of r) t += c; return t })); console.log('http', answers.join(',')); server.close();
J
outcome node work.mjs
outcome env UV_USE_IO_URING=1 node work.mjs
outcome node -e 'process.exit(4)'
