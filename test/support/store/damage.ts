import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { runFiles } from '../../../src/store/index.ts'

/** A file that nobody can open for now, named `blob:0000` where the database refers to it. Fails with ENXIO, for root, too. */
export function blobOutOfReach(folder: string): Disposable {
  const server = createServer().listen(blobPath(folder))
  return { [Symbol.dispose]: () => void server.close() }
}

/** One that is there and cannot be read: the disk fails where it lies, or its name leads nowhere. */
export function unreadableBlob(folder: string, code: 'EIO' | 'ELOOP'): Disposable {
  const path = blobPath(folder)
  symlinkSync(code === 'EIO' ? '/proc/self/mem' : '0000', path)
  return { [Symbol.dispose]: () => rmSync(path) }
}

/** Changes a byte in the middle of every blob of a run, of which there must be some. */
export function flipBlobs(folder: string): void {
  const root = join(folder, runFiles.blobs)
  const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  if (files.length === 0) throw new Error(`${root} holds no blobs`)
  for (const { parentPath, name } of files) {
    const bytes = readFileSync(join(parentPath, name))
    const middle = bytes.length >> 1
    bytes.writeUInt8(bytes.readUInt8(middle) ^ 1, middle)
    writeFileSync(join(parentPath, name), bytes)
  }
}

function blobPath(folder: string): string {
  const parent = join(folder, runFiles.blobs, '00')
  mkdirSync(parent, { recursive: true })
  return join(parent, '0000')
}

/** Makes the first page of its kind that a table has into none. */
export function damagePage(folder: string, table: string, kind: 'leaf' | 'overflow'): void {
  const file = join(folder, runFiles.database)
  using database = new DatabaseSync(file)
  database.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  const page = database
    .prepare('SELECT pageno, pgsize FROM dbstat WHERE name = ? AND pagetype = ? LIMIT 1')
    .get(table, kind)
  // Not `pgoffset`, which is wrong for the first page of an overflow.
  const start = (Number(page?.['pageno']) - 1) * Number(page?.['pgsize'])
  const bytes = readFileSync(file)
  bytes.fill(0xff, start, start + 8)
  writeFileSync(file, bytes)
}
