import { fileURLToPath } from 'node:url'

const ownFolder = fileURLToPath(new URL('../', import.meta.url))

/** How much of a stack is searched: it has ten frames unless somebody asks for more, and a name in one may be long. */
const maxFramesChars = 32 * 1024

interface Frame {
  readonly file: string
  readonly line: string
}

/**
 * `file:line` of the first frame in the module itself, else in any file that is neither Node's, a package's nor ours.
 * Undefined if the stack tells nothing: the user's `Error.prepareStackTrace`, or a getter, may make anything of it.
 */
export function placeOfError(thrown: unknown, module?: URL): string | undefined {
  try {
    return thrown instanceof Error && typeof thrown.stack === 'string'
      ? placeIn(thrown.stack, thrown, module)
      : undefined
  } catch {
    return undefined
  }
}

function placeIn(stack: string, { message }: Error, module: URL | undefined): string | undefined {
  // Stacks of syntax errors begin with the place, not with the error's name.
  const head = /^(?:file:\/\/)?(\/.+:\d+)\n/.exec(stack)?.[1]
  if (head !== undefined) return head
  // The message is skipped: it may be long, and quote another stack. One that was changed since is not in the stack.
  const messageAt = stack.indexOf(message)
  const from = messageAt === -1 ? Math.max(0, stack.length - maxFramesChars) : messageAt + message.length
  const frames = stack
    .slice(from, from + maxFramesChars)
    .split('\n')
    .flatMap(frameOf)
  const modulePath = module && fileURLToPath(module)
  const frame =
    frames.find(({ file }) => file === modulePath) ??
    frames.find(({ file }) => !file.includes('/node_modules/') && !file.startsWith(ownFolder))
  return frame && `${frame.file}:${frame.line}`
}

/** The frame in a line that names a file: a URL in an ES module, a path in CommonJS; in brackets, or the whole line. */
function frameOf(text: string): Frame[] {
  const [, named] = /^ {4}at (.*)$/.exec(text) ?? []
  if (named === undefined) return []
  const place = named.endsWith(')') ? named.slice(named.indexOf(' (') + 2, -1) : named.replace(/^async /, '')
  const [, file, line] = /^((?:file:\/\/)?\/.*):(\d+):\d+$/.exec(place) ?? []
  if (file === undefined || line === undefined) return []
  return [{ file: file.startsWith('file:') ? fileURLToPath(file) : file, line }]
}
