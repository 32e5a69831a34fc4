import { isAbsolute, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type ErrorCode, MillraceError } from '../../errors/index.ts'

/** The longest message that is kept in a record: some code puts the whole output of a program into an error. */
const maxMessageChars = 16 * 1024

/** `reward "exact" threw TypeError at environment.ts:41: …`. The place comes before the message, which may be cut. */
export function thrownBy(what: string, thrown: unknown, code: ErrorCode): MillraceError {
  const { kind, place, message } = describeThrown(thrown)
  const threw = kind === undefined ? '' : ` threw ${kind}`
  const at = place === undefined ? '' : ` at ${place}`
  const data = thrown instanceof MillraceError ? thrown.data : {}
  return new MillraceError(code, `${what}${threw}${at}: ${shortened(message)}`, {
    data: place === undefined ? data : { ...data, place },
    cause: thrown,
  })
}

function shortened(message: string): string {
  const more = message.length - maxMessageChars
  return more > 0 ? `${message.slice(0, maxMessageChars)}… (${more} characters more)` : message
}

interface Thrown {
  /** The class of an exception; undefined for our own errors, whose message says it all. */
  readonly kind: string | undefined
  /** `file:line` in the user's own files, relative to the working directory if it is in there. */
  readonly place: string | undefined
  readonly message: string
}

export function describeThrown(thrown: unknown): Thrown {
  const place = errorLocation(thrown)
  return {
    kind: kindOf(thrown),
    place: place === undefined ? undefined : fromHere(place),
    message: MillraceError.from(thrown, 'internal').rawMessage,
  }
}

function kindOf(thrown: unknown): string | undefined {
  if (thrown instanceof MillraceError) return undefined
  if (!(thrown instanceof Error)) return `a value of type ${thrown === null ? 'null' : typeof thrown}`
  try {
    return thrown.name
  } catch {
    // `name` may be a getter of the user's that throws: a failure must not become another one.
    return 'Error'
  }
}

function fromHere(place: string): string {
  try {
    const path = relative(process.cwd(), place)
    return path.startsWith('..') || isAbsolute(path) ? place : path
  } catch {
    // The working directory may be gone.
    return place
  }
}

const ownFolder = fileURLToPath(new URL('../../', import.meta.url))

/** How much of a stack is searched: it has ten frames unless somebody asks for more, and a name in one may be long. */
const maxFramesChars = 32 * 1024

/**
 * `file:line` of the first frame in the module itself, else in any file that is neither Node's, a package's nor ours.
 * Undefined if the stack tells nothing: the user's `Error.prepareStackTrace`, or a getter, may make anything of it.
 */
export function errorLocation(thrown: unknown, module?: URL): string | undefined {
  try {
    return thrown instanceof Error && typeof thrown.stack === 'string'
      ? locationIn(thrown.stack, thrown, module)
      : undefined
  } catch {
    return undefined
  }
}

function locationIn(stack: string, { message }: Error, module: URL | undefined): string | undefined {
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
function frameOf(text: string): { readonly file: string; readonly line: string }[] {
  const [, named] = /^ {4}at (.*)$/.exec(text) ?? []
  if (named === undefined) return []
  const place = named.endsWith(')') ? named.slice(named.indexOf(' (') + 2, -1) : named.replace(/^async /, '')
  const [, file, line] = /^((?:file:\/\/)?\/.*):(\d+):\d+$/.exec(place) ?? []
  if (file === undefined || line === undefined) return []
  return [{ file: file.startsWith('file:') ? fileURLToPath(file) : file, line }]
}

/** The error and its causes, at most four: an error may be its own cause. */
export function* causesOf(error: unknown): Generator<Error> {
  let link = error
  for (let depth = 0; depth < 4 && link instanceof Error; depth += 1) {
    yield link
    link = link.cause
  }
}
