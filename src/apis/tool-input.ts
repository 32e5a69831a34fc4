import { exactSource, hasInexactNumber, isNestedWithin, parseExactly } from '../kit/index.ts'
import { isJsonObject, type JsonObject, type ToolCall } from '../schema/index.ts'

/**
 * The key under which Anthropic's documentation wraps arguments that are no JSON object, where an object is required.
 * Nothing is repaired or left out: the client sees what the model wrote and that it is not valid. When the client sends the
 * call back, the wrapped text becomes the arguments again.
 */
const invalidKey = 'INVALID_JSON'

/** Arguments that are nested deeper than this count as invalid too: writing them again would overflow the stack. */
const maxDepth = 256

/**
 * The arguments of a call as an object, for writing: numbers that a double cannot hold are kept as the model wrote them. An
 * empty text becomes an empty object: models call a tool without parameters like that.
 */
export function toolInput(written: string): JsonObject {
  const input = plainInput(written)
  if (!hasInexactNumber(input)) return input
  const exact = parseExactly(written)
  return isJsonObject(exact) ? exact : input
}

/** Whether a call among the blocks of a message has a number in its input that a double cannot hold. */
export function hasInexactInput(blocks: unknown): boolean {
  if (!Array.isArray(blocks)) return false
  return blocks.some((block) => isJsonObject(block) && block['type'] === 'tool_use' && hasInexactNumber(block['input']))
}

function plainInput(written: string): JsonObject {
  if (written === '') return {}
  let value: unknown
  try {
    value = JSON.parse(written)
  } catch {
    return { [invalidKey]: written }
  }
  return isJsonObject(value) && isNestedWithin(maxDepth, value) ? value : { [invalidKey]: written }
}

/** The arguments as the text of an object: the model's own text, unless that is no object. */
export function toolInputText(written: string): string {
  const input = plainInput(written)
  return Object.keys(input).length === 1 && input[invalidKey] === written ? JSON.stringify(input) : written
}

/** The same, for a place where the text must be an object: an empty text becomes an empty one. */
export function inputJson(written: string): string {
  return written.trim() === '' ? '{}' : toolInputText(written)
}

/** Claude Code's own wrapper of arguments that are no JSON: their text and its length. A long text may be cut off. */
const unparsedKey = '__unparsedToolInput'

/** The text of an input. JSON loses how the model wrote it (spaces, `1.0`): compare with `argumentsKey`. */
export function writtenArguments(input: JsonObject): string {
  if (Object.keys(input).length === 1) {
    const { [invalidKey]: wrapped, [unparsedKey]: unparsed } = input
    if (typeof wrapped === 'string') return wrapped
    const { raw, len } = isJsonObject(unparsed) ? unparsed : {}
    if (typeof raw === 'string' && raw.length === len) return raw
  }
  return JSON.stringify(input)
}

/** The parameters of a function that stands for a freeform tool: the tool's input is a text of its own. */
export const freeformSchema: JsonObject = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The whole input of the tool, as plain text.' } },
  required: ['input'],
  additionalProperties: false,
}

/** The input of a freeform tool. Arguments of another shape are wrapped; `freeformArguments` gives them back. */
export function freeformInput(written: string): string {
  const { input, ...others } = plainInput(written)
  const isPlain = typeof input === 'string' && Object.keys(others).length === 0 && unwrapped(input) === undefined
  return isPlain ? input : JSON.stringify({ [invalidKey]: written })
}

/** The arguments for the input of a freeform tool. JSON loses how the model wrote them: compare with `argumentsKey`. */
export function freeformArguments(input: string): string {
  return unwrapped(input) ?? JSON.stringify({ input })
}

/** The arguments that `freeformInput` has wrapped; undefined for any other text. */
function unwrapped(text: string): string | undefined {
  if (!text.startsWith(`{"${invalidKey}":`)) return undefined
  const { [invalidKey]: wrapped, ...others } = plainInput(text)
  return typeof wrapped === 'string' && Object.keys(others).length === 0 ? wrapped : undefined
}

/**
 * A key that is equal for arguments that mean the same. A client of Messages gets an object and sends an object back, so the
 * text of a call it repeats mostly differs from the text that was sampled. Many clients have no other numbers than doubles.
 */
export function argumentsKey(written: string): string {
  return JSON.stringify(plainInput(written))
}

/** Numbers that two texts may spell differently and a double holds as one: many digits, or an exponent. */
const longNumber = /[\d.]{16}|\d[eE][+-]?\d/

/**
 * Whether a client has sent back the recorded arguments, written in its own way. Given are arguments of the same key, so they
 * are equal to anyone who computes with doubles: spaces, escapes, the order of keys and repeated keys (of which the last counts)
 * do not matter. A number must be the recorded one, or what a double makes of that, because many clients have no others.
 * Arguments that are no JSON object are not compared. `changes`: what the client may have done to the recorded arguments, beside
 * writing them anew; then the key is that of the changed ones.
 */
export function sameArguments(
  recorded: string,
  sent: string,
  changes: readonly ((input: JsonObject) => JsonObject)[] = [],
): boolean {
  if (recorded === sent) return true
  if (sent.includes(invalidKey)) return false
  if (!longNumber.test(recorded) && !longNumber.test(sent)) return true
  const meant = parseExactly(recorded || '{}')
  const repeated = parseExactly(sent || '{}')
  if (isSameJson(meant, repeated)) return true
  return isJsonObject(meant) && changes.some((change) => isSameJson(change(meant), repeated))
}

function isSameJson(recorded: unknown, sent: unknown): boolean {
  const number = numberText(recorded)
  if (number !== undefined) {
    const sentNumber = numberText(sent)
    if (sentNumber === undefined) return false
    const value = decimalOf(sentNumber)
    return value === decimalOf(number) || value === decimalOf(String(Number(number)))
  }
  if (!isObject(recorded) || !isObject(sent)) return recorded === sent
  const names = Object.keys(recorded)
  if (Array.isArray(recorded) !== Array.isArray(sent) || names.length !== Object.keys(sent).length) return false
  return names.every((name) => Object.hasOwn(sent, name) && isSameJson(recorded[name], sent[name]))
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && numberText(value) === undefined
}

/** A number of `parseExactly` as it was written; undefined for everything else. */
function numberText(value: unknown): string | undefined {
  return typeof value === 'number' ? String(value) : exactSource(value)
}

/** The value of a decimal number in one spelling: its digits without zeros around them, and the power of ten. */
function decimalOf(written: string): string {
  const [, sign = '', whole = '', fraction = '', power = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(written) ?? []
  const digits = (whole + fraction).replace(/^0+/, '')
  const short = digits.replace(/0+$/, '')
  if (short === '') return whole === '' ? written : '0'
  return `${sign}${short}e${BigInt(power) - BigInt(fraction.length) + BigInt(digits.length - short.length)}`
}

type CalledFunction = Pick<ToolCall['function'], 'name' | 'arguments'>

/** What Claude Code may do to the calls of one reply, depending on its folder and on whether a file exists. */
interface CallChange {
  /** The folder of which `cd <folder> && ` is taken off the start of commands. */
  readonly folder: string | undefined
  /** Whether spaces are taken off the ends of lines in what is written to files. */
  readonly trimsLines: boolean
}

/** The most folders of one reply that are looked at. A command in a further one counts as it was sampled. */
const maxFolders = 4

const folderChange = /^cd (\S+) && /
const markdown = /\.mdx?$/i
const lineBreaks = /(\r\n|\n|\r)/

/** All that Claude Code 2.1.326 may do to the calls of a reply. None if no tool is called whose calls it changes. */
export function changesOf(calls: readonly CalledFunction[]): readonly CallChange[] {
  if (!calls.some(({ name }) => name === 'Bash' || name === 'Edit' || name === 'Write')) return []
  const folders = new Set<string | undefined>([undefined])
  for (const called of calls) {
    const { command } = called.name === 'Bash' ? inputOf(called) : {}
    if (typeof command === 'string' && folders.size <= maxFolders) folders.add(folderChange.exec(command)?.[1])
  }
  return Array.from(folders).flatMap((folder) => [
    { folder, trimsLines: true },
    { folder, trimsLines: false },
  ])
}

/** The arguments of a call as Claude Code 2.1.326 sends them back: the same for all tools but three. */
export function changedInput(name: string, input: JsonObject, { folder, trimsLines }: CallChange): JsonObject {
  const { command, file_path: path, new_string: replacement, content } = input
  const trims = trimsLines && typeof path === 'string' && !markdown.test(path)
  if (name === 'Bash' && typeof command === 'string') return { ...input, command: changedCommand(command, folder) }
  if (name === 'Write' && trims && typeof content === 'string') return { ...input, content: trimmed(content) }
  if (name === 'Edit') {
    const new_string = trims && typeof replacement === 'string' ? { new_string: trimmed(replacement) } : {}
    return { replace_all: false, ...input, ...new_string }
  }
  return input
}

export function inputOf({ arguments: written }: CalledFunction): JsonObject {
  return plainInput(written)
}

function changedCommand(command: string, folder: string | undefined): string {
  const head = `cd ${folder} && `
  const rest = folder !== undefined && command.startsWith(head) ? command.slice(head.length) : command
  return rest.replaceAll('\\\\;', '\\;')
}

/** Every second piece is a line break. */
function trimmed(text: string): string {
  const pieces = text.split(lineBreaks)
  return pieces.map((piece, index) => (index % 2 === 0 ? piece.trimEnd() : piece)).join('')
}
