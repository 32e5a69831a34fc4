import { fileURLToPath } from 'node:url'

/** `file:line` of the first frame in the module itself, else in any file that is neither Node's, a package's nor ours. */
export function placeOfError(thrown: unknown, module?: URL): string | undefined {
  if (!(thrown instanceof Error) || thrown.stack === undefined) return undefined
  // Errors of the parser begin with the place, not with their name.
  const head = /^(?:file:\/\/)?(\/.+:\d+)\n/.exec(thrown.stack)?.[1]
  if (head !== undefined) return head
  const frames = Array.from(thrown.stack.matchAll(/(file:\/\/\/[^\s()]+):(\d+):\d+\)?$/gm), ([, file = '', line]) => ({
    file,
    line,
  }))
  const ownFolder = new URL('../', import.meta.url).href
  const frame =
    frames.find(({ file }) => file === module?.href) ??
    frames.find(({ file }) => !file.includes('/node_modules/') && !file.startsWith(ownFolder))
  return frame && `${fileURLToPath(frame.file)}:${frame.line}`
}
