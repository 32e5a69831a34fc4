import type { JsonObject, ToolCall } from '../schema/index.ts'
import { argumentsKey } from './tool-input.ts'

/** A function that was called, with the text of its arguments. */
export type CalledFunction = Pick<ToolCall['function'], 'name' | 'arguments'>

/**
 * What Claude Code may do to the calls of one reply before it sends them back, beside what it always does. It depends on the
 * folder that the agent is in, and on whether a file exists, which nobody else knows.
 */
export interface CallChange {
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
  return JSON.parse(argumentsKey(written)) as JsonObject
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
