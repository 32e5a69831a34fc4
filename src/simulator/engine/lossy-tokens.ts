import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { readSampled } from '../../inference/index.ts'
import {
  type AssistantMessage,
  isJsonObject,
  type JsonObject,
  type Message,
  type ToolDefinition,
} from '../../schema/index.ts'
import { ChatTemplate, Tokenizer } from '../../tokenizer/index.ts'
import { toolFormatOf } from '../../tool-formats/index.ts'
import { draw } from './draw.ts'
import { type Conversation, type Token, type TokenPart, type Vocabulary, writeReply } from './tokens.ts'

/** A folder like that of a model. `scripts/make-simulator-tokenizer.ts` has made its tokenizer. */
const folder = fileURLToPath(new URL('../../../assets/simulator', import.meta.url))

/** How often a token is sampled as two, if it can be: four of five replies of some 50 tokens have a token that the tokenizer would not make. */
const splitRate = 0.05

const markers = { open: '<think>', close: '</think>' }
const end = '<|im_end|>'

let loaded: LossyTokens | undefined

/** The tokens of the small tokenizer. Loaded when they are first needed. */
export function lossyTokens(): Vocabulary {
  loaded ??= new LossyTokens()
  return loaded
}

/**
 * A real tokenizer and a real chat template, in text as models with tools and reasoning write it. What is sampled does not survive
 * that it is decoded and encoded again: some tokens are sampled in two pieces, the template spells arguments anew, and leaves out
 * the reasoning of earlier replies.
 */
class LossyTokens implements Vocabulary {
  readonly folder = folder
  readonly #tokenizer = new Tokenizer(readJson('tokenizer.json'), readJson('tokenizer_config.json'))
  readonly #pieces = new Pieces(readJson('tokenizer.json'))
  readonly #template = new ChatTemplate({ source: readText('chat_template.jinja'), variables: {} })

  encode(text: string): Int32Array {
    return this.#tokenizer.encode(text)
  }

  prompt({ messages, tools }: Conversation): Int32Array {
    const text = this.#template.render({ messages, tools, addGenerationPrompt: true })
    return Int32Array.from(this.#tokenizer.encodeParts(text).flatMap((ids) => Array.from(ids)))
  }

  promptTokens(conversation: Conversation): number {
    return this.prompt(conversation).length
  }

  sample(message: AssistantMessage, base: number): Token[] {
    const reply = new SampledReply(this.#tokenizer, this.#pieces, base)
    writeReply(reply, message)
    reply.end()
    return reply.tokens
  }

  /** Reads a prompt as the template writes it. */
  read(promptIds: Int32Array): ReturnType<NonNullable<Vocabulary['read']>> {
    const turns = this.#tokenizer.decode(promptIds).split('<|im_start|>').slice(1)
    const messages: Message[] = []
    let tools: readonly ToolDefinition[] = []
    // The last turn is the beginning of the reply.
    for (const turn of turns.slice(0, -1)) {
      const [role = '', ...lines] = turn.replace(/<\|im_end\|>\n?$/, '').split('\n')
      const text = lines.join('\n')
      if (role === 'assistant') {
        messages.push(readSampled({ text, startsInReasoning: false }, { markers, toolFormat, messages }))
      } else if (role === 'system') {
        const [said = '', listed] = text.split(/(?:^|\n\n)# Tools\n\n<tools>\n/)
        if (said !== '' || listed === undefined) messages.push({ role, content: said })
        if (listed !== undefined) tools = toolsIn(listed)
      } else messages.push(...readUser(text, messages.at(-1)))
    }
    const opening = this.#tokenizer.encode('<|im_start|>assistant\n')
    const begun = promptIds.length - promptIds.lastIndexOf(opening[0] ?? -1) - opening.length
    return { messages, tools, ...(begun > 0 && { begun }) }
  }
}

const toolFormat = toolFormatOf('hermes')

function readText(name: string): string {
  return readFileSync(`${folder}/${name}`, 'utf8')
}

function readJson(name: string): JsonObject {
  const value: unknown = JSON.parse(readText(name))
  return isJsonObject(value) ? value : {}
}

function toolsIn(listed: string): readonly ToolDefinition[] {
  const lines = listed.split('\n').filter((line) => line.startsWith('{'))
  return lines.map((line) => JSON.parse(line) as ToolDefinition)
}

/** The results of the calls before it, which the template writes in their order, or what a user said. */
function readUser(text: string, before: Message | undefined): Message[] {
  const results = Array.from(text.matchAll(/<tool_response>\n([^]*?)\n<\/tool_response>/g), ([, result = '']) => result)
  const calls = (before?.role === 'assistant' && before.tool_calls) || []
  if (results.length === 0 || calls.length === 0) return [{ role: 'user', content: text }]
  return results.map((content, index) => ({ role: 'tool', tool_call_id: calls[index]?.id ?? 'call_0', content }))
}

/** A reply as text in Hermes' format. Each part is encoded apart, and some of its tokens are split. */
class SampledReply {
  readonly tokens: Token[] = []
  readonly #tokenizer: Tokenizer
  readonly #pieces: Pieces
  readonly #base: number
  /** The call that has not ended yet; -1 for none. */
  #call = -1

  constructor(tokenizer: Tokenizer, pieces: Pieces, base: number) {
    this.#tokenizer = tokenizer
    this.#pieces = pieces
    this.#base = base
  }

  marker(name: string, call = -1): void {
    if (name === '<think>') this.#literal(`${markers.open}\n`)
    else if (name === '</think>') this.#literal(`\n${markers.close}\n\n`)
    else if (name === '<arguments>') this.#literal('", "arguments": ', call)
    else {
      this.#endCall()
      const isFirst = call === 0 && this.tokens.at(-1)?.part !== 'content'
      this.#literal(`${isFirst ? '' : '\n'}<tool_call>\n{"name": "`, call)
      this.#call = call
    }
  }

  text(text: string, part: TokenPart, call = -1): void {
    // A character may be divided among tokens: it then comes with the last of them.
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
    for (const id of this.#tokenizer
      .encode(text)
      .values()
      .flatMap((whole) => this.#sampledAs(whole))) {
      this.tokens.push({ id, piece: decoder.decode(this.#pieces.bytes(id), { stream: true }), part, call })
    }
  }

  end(): void {
    this.#endCall()
    this.#literal(end)
  }

  #sampledAs(id: number): readonly number[] {
    if (this.#tokenizer.isSpecial(id)) return this.#pieces.spelled(this.#tokenizer.decode([id]))
    const at = this.tokens.length
    return draw(this.#base, 'split', at) < splitRate ? this.#pieces.split(id, draw(this.#base, 'place', at)) : [id]
  }

  #endCall(): void {
    if (this.#call >= 0) this.#literal('}\n</tool_call>', this.#call)
    this.#call = -1
  }

  #literal(text: string, call = -1): void {
    const { tokens } = this
    for (const id of this.#tokenizer.encode(text)) {
      tokens.push({ id, piece: this.#tokenizer.decode([id]), part: 'marker', call })
    }
  }
}

/** The tokens that are no markers, as their bytes. The tokenizer writes a byte as a letter, and the first 256 ids are the bytes. */
class Pieces {
  readonly #ids: ReadonlyMap<string, number>
  readonly #letters: readonly string[]

  constructor({ model }: JsonObject) {
    const vocabulary = isJsonObject(model) && isJsonObject(model['vocab']) ? model['vocab'] : {}
    this.#ids = new Map(Object.entries(vocabulary).map(([letters, id]) => [letters, Number(id)]))
    const letters: string[] = []
    for (const [written, id] of this.#ids) letters[id] = written
    this.#letters = letters
  }

  bytes(id: number): Uint8Array {
    return Uint8Array.from(this.#letters[id] ?? '', (letter) => this.#ids.get(letter) ?? 0)
  }

  /** Two tokens with the same text; the token itself if it has no such halves. `place`, from 0 to 1, decides between them. */
  split(id: number, place: number): readonly number[] {
    const letters = this.#letters[id] ?? ''
    const pairs = Array.from({ length: Math.max(0, letters.length - 1) }, (_, at) => [
      this.#ids.get(letters.slice(0, at + 1)),
      this.#ids.get(letters.slice(at + 1)),
    ]).map((halves) => halves.filter((half) => half !== undefined))
    const whole = pairs.filter((halves) => halves.length === 2)
    return whole[Math.floor(place * whole.length)] ?? [id]
  }

  /** A marker within a text, letter by letter: a model that repeats one does not end its reply with it. */
  spelled(marker: string): readonly number[] {
    return Array.from(Buffer.from(marker))
  }
}
