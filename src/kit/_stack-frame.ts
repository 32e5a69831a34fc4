import { fileURLToPath } from 'node:url'

export interface StackFrame {
  readonly functionName: string
  readonly url: string
  readonly line: number
}

const ownFolder = new URL('../', import.meta.url).href

/** Tests for the owner of a frame, the most telling first: users look for their own function, not for what it called. */
const owners: readonly ((url: string) => boolean)[] = [
  (url) => url.startsWith('file:') && !url.includes('/node_modules/') && !url.startsWith(ownFolder),
  (url) => url.startsWith('file:') && !url.startsWith(ownFolder),
  (url) => url.startsWith('file:'),
]

/**
 * `name (file:line)` of the innermost frame of the most telling owner. Undefined if all frames are Node's: such a thread was
 * only just about to do something.
 */
export function frameName(frames: readonly StackFrame[]): string | undefined {
  for (const isOwner of owners) {
    const frame = frames.find(({ url }) => isOwner(url))
    if (frame) return `${frame.functionName || 'anonymous'} (${fileURLToPath(frame.url)}:${frame.line})`
  }
  return undefined
}
