import { hash } from 'node:crypto'
import { mkdir, open, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { type ContentPart, partsText } from '../schema/index.ts'
import { wholeFrom } from './tool-box.ts'
import type { Tool, ToolResult } from './tool.ts'

/** How much of one output is kept on disk; a longer output is cut. */
export const maxKeptChars = 16 * 1024 * 1024

/** The share of the shown text that is the beginning; the rest is the end, where errors and totals stand. */
const headShare = 0.8

/** The most characters that the note in a shortened output, or after a part that was read back, may take. */
export const noteChars = 250

type Content = string | readonly ContentPart[]

/** Long outputs are kept whole in files, named by their content, so that a resumed rollout finds the same names again. */
export class ToolOutputs {
  readonly maxChars: number
  readonly #folder: string
  readonly #isReadOnly: boolean

  /** Read-only for a replay, which must not change the run it repeats: its outputs are kept there already. */
  constructor(folder: string, maxChars: number, { isReadOnly = false } = {}) {
    this.#folder = folder
    this.maxChars = maxChars
    this.#isReadOnly = isReadOnly
  }

  async shorten(content: Content): Promise<Content> {
    const text = partsText(content)
    if (text.length <= this.maxChars) return content
    const shown = await this.#keep(text)
    return typeof content === 'string'
      ? shown
      : [{ type: 'text', text: shown }, ...content.filter(({ type }) => type !== 'text')]
  }

  /** A part of a kept output; offset and length are in characters. */
  async read(name: string, offset: number, length: number): Promise<string> {
    if (!namePattern.test(name)) throw noOutput(name)
    let file
    try {
      file = await open(this.#path(name))
    } catch (error) {
      throw noOutput(name, error)
    }
    try {
      // Kept as UTF-16, so that a character's place in the file follows from its number.
      const bytes = Buffer.alloc((length + 1) * 2)
      const { bytesRead } = await file.read(bytes, 0, bytes.length, offset * 2)
      const { size } = await file.stat()
      // One character more than asked for, to see whether a surrogate pair would be cut in two.
      const found = bytes.toString('utf16le', 0, bytesRead)
      const text = found.slice(0, wholeFrom(found, Math.min(length, found.length)))
      const end = offset + text.length
      const left = size / 2 - end
      return text + (left > 0 ? `\n[${left} more characters: read on from offset ${end}]` : '\n[this is the end]')
    } finally {
      await file.close()
    }
  }

  /** Removes all that is kept. */
  async remove(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #keep(text: string): Promise<string> {
    const name = `o-${hash('sha256', text, 'hex').slice(0, 12)}`
    if (!this.#isReadOnly) {
      await mkdir(this.#folder, { recursive: true })
      await writeFile(this.#path(name), text, 'utf16le')
    }
    // Never longer than allowed, with the note: a shortened output must not be shortened again when it is read from a journal.
    const room = this.maxChars - noteChars
    const head = text.slice(0, wholeFrom(text, Math.floor(room * headShare)))
    const tail = text.slice(wholeFrom(text, text.length - Math.floor(room * (1 - headShare))))
    const left = text.length - head.length - tail.length
    const how = `read_tool_output with {"output": "${name}", "offset": ${head.length}}`
    return `${head}\n[${left} of ${text.length} characters are left out here; to read them, call ${how}]\n${tail}`
  }

  #path(name: string): string {
    return join(this.#folder, `${name}.txt`)
  }
}

const namePattern = /^o-[0-9a-f]{12}$/

function noOutput(name: string, cause?: unknown): MillraceError {
  const message = `there is no output "${name.slice(0, 40)}"; use a name that a shortened output gave`
  return new MillraceError('tool_failed', message, { cause })
}

const parameters = z.object({
  output: z.string().describe('The name that the shortened output gave'),
  offset: z.number().int().min(0).default(0).describe('The first character to read'),
  length: z.number().int().min(1).optional().describe('How many characters; as many as may be shown if left out'),
})

export const readOutputToolName = 'read_tool_output'

/** Reads what a shortened output left out. One of an environment's tools where long outputs are kept. */
export const readOutputTool: Tool<{ readonly outputs: ToolOutputs | undefined }, typeof parameters> = {
  description: 'Reads a part of an earlier tool output that was too long to be shown whole.',
  parameters,
  resume: 'reuse',
  run: ({ output, offset, length }, { outputs }) => {
    if (!outputs) throw new MillraceError('tool_failed', 'no long outputs are kept')
    // The part that is read is itself an output, and must not be shortened again.
    const most = outputs.maxChars - noteChars
    return outputs.read(output, offset, Math.min(length ?? most, most))
  },
}

/** The results of a turn as the model sees them; outputs that are too long go into files. */
export async function shortenResults(results: readonly ToolResult[], outputs: ToolOutputs): Promise<ToolResult[]> {
  return await Promise.all(
    results.map(async (result) => {
      const { message, record } = result
      const content = await outputs.shorten(message.content)
      return content === message.content ? result : { message: { ...message, content }, record }
    }),
  )
}
