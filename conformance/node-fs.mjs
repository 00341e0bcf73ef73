// File operations with known results, through node's promises: with UV_USE_IO_URING=1 libuv submits
// them to a ring.
import fs from 'node:fs/promises';
import assert from 'node:assert/strict';
import path from 'node:path';

const dir = await fs.mkdtemp(path.join(process.cwd(), 'node-'));
const text = (i) => `file ${i} `.repeat(1 + i * 37);

async function oneFile(i) {
  const file = path.join(dir, `f${i}`);
  await fs.writeFile(file, text(i));
  assert.equal(await fs.readFile(file, 'utf8'), text(i));
  const stat = await fs.stat(file);
  assert.equal(stat.size, Buffer.byteLength(text(i)));
  assert.ok(stat.isFile());
  const handle = await fs.open(file, 'r+');
  await handle.write('HEAD', 0);
  await handle.datasync();
  await handle.sync();
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(8), 0, 8, 0);
  assert.equal(buffer.subarray(0, bytesRead).toString(), 'HEAD' + text(i).slice(4, 8));
  assert.equal((await handle.stat()).size, stat.size);
  const parts = [Buffer.alloc(3), Buffer.alloc(4)];
  assert.equal((await handle.readv(parts, 0)).bytesRead, 7);
  assert.equal(Buffer.concat(parts).toString(), 'HEAD' + text(i).slice(4, 7));
  await handle.close();
  const moved = file + '.moved';
  await fs.rename(file, moved);
  await fs.link(moved, file + '.link');
  await fs.symlink(moved, file + '.symlink');
  assert.ok((await fs.lstat(file + '.symlink')).isSymbolicLink());
  assert.equal((await fs.stat(moved)).nlink, 2);
}

for (let round = 0; round < 4; round++) {
  await Promise.all(Array.from({ length: 64 }, (_, i) => oneFile(round * 64 + i)));
}
assert.equal((await fs.readdir(dir)).length, 4 * 64 * 3);
await assert.rejects(fs.readFile(path.join(dir, 'missing')), { code: 'ENOENT' });
await assert.rejects(fs.open(dir, 'w'), { code: 'EISDIR' });
await assert.rejects(fs.stat(path.join(dir, 'f0.moved', 'x')), { code: 'ENOTDIR' });
await fs.rm(dir, { recursive: true });

// Without a ring libuv's own threads would have done all this. A ring has threads of its own.
const tasks = await fs.readdir('/proc/self/task');
const names = await Promise.all(tasks.map((task) => fs.readFile(`/proc/self/task/${task}/comm`, 'utf8')));
assert.ok(names.some((name) => name.startsWith('iou-')), `no thread of a ring among: ${names.join(' ')}`);
console.log('all well');
