import type { Readable, Writable } from 'node:stream'

/** For each target, the sources that wait for it to take more. At most one per worker. */
const heldBack = new WeakMap<Writable, Set<Readable>>()

/** Like `pipe`, but with one listener on the target at most, because many workers share a target. */
export function passOn(source: Readable, target: Writable): void {
  source.on('data', (chunk: Buffer) => {
    if (!target.write(chunk)) holdBack(source, target)
  })
}

function holdBack(source: Readable, target: Writable): void {
  source.pause()
  const waiting = heldBack.get(target)
  if (waiting) {
    waiting.add(source)
    return
  }
  const sources = new Set([source])
  heldBack.set(target, sources)
  target.once('drain', () => {
    heldBack.delete(target)
    for (const each of sources) each.resume()
  })
}
