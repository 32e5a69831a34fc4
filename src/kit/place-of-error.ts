import { fileURLToPath } from 'node:url'

const ownFolder = fileURLToPath(new URL('../', import.meta.url))

/** Of a frame in a file, which is a URL in an ES module and a path in a CommonJS one. */
const frameEnd = /(?<=[\s(])((?:file:\/\/)?\/[^()\n]+):(\d+):\d+\)?$/gm

/** `file:line` of the first frame in the module itself, else in any file that is neither Node's, a package's nor ours. */
export function placeOfError(thrown: unknown, module?: URL): string | undefined {
  // `Error.prepareStackTrace`, where somebody has set it, may make anything of a stack.
  if (!(thrown instanceof Error) || typeof thrown.stack !== 'string') return undefined
  // Errors of the parser begin with the place, not with their name.
  const head = /^(?:file:\/\/)?(\/.+:\d+)\n/.exec(thrown.stack)?.[1]
  if (head !== undefined) return head
  const frames = Array.from(thrown.stack.matchAll(frameEnd), ([, file = '', line]) => ({
    file: file.startsWith('file:') ? fileURLToPath(file) : file,
    line,
  }))
  const modulePath = module && fileURLToPath(module)
  const frame =
    frames.find(({ file }) => file === modulePath) ??
    frames.find(({ file }) => !file.includes('/node_modules/') && !file.startsWith(ownFolder))
  return frame && `${frame.file}:${frame.line}`
}
