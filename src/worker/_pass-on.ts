import type { Readable, Writable } from 'node:stream'

/** Sources that wait for a target to take more. At most one per worker. */
const heldBack = new WeakMap<Writable, Set<Readable>>()

/** As `pipe` does, but with one listener on the target at most: many workers share one. */
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
