import { messageJson, type PartialReply } from '../apis/index.ts'
import type { Message, Usage } from '../schema/index.ts'
import type { ModelConfig, Price } from './config.ts'

/** The usage of a reply whose server reported none: tokens are counted if their ids came, and estimated if not. */
export function estimatedUsage({ message, tokens }: PartialReply, prompt: readonly Message[]): Usage {
  const input = tokens?.promptIds?.length
  const output = tokens?.ids.length || undefined
  return {
    calls: 1,
    input: input ?? estimatedTokens(prompt),
    cachedInput: 0,
    output: output ?? tokensOfText(charsOf(message)),
    reasoning: 0,
    ...((input === undefined || output === undefined) && { estimated: 1 }),
  }
}

function charsOf({
  content,
  reasoning_content: reasoning,
  refusal,
  tool_calls: calls = [],
  others = [],
}: PartialReply['message']): number {
  let chars = (content?.length ?? 0) + (reasoning?.length ?? 0) + (refusal?.length ?? 0)
  for (const { value } of others) chars += JSON.stringify(value).length
  return calls.reduce((sum, { function: called }) => sum + called.name.length + called.arguments.length, chars)
}

/** A usual figure for English text. */
const charsPerToken = 4
/** What an image of ordinary size costs in tokens. The length of its url, which may hold the whole image, does not tell. */
const tokensPerImage = 1_000

/** An estimate of the tokens of messages, for when nobody has counted them. */
export function estimatedTokens(messages: readonly Message[]): number {
  let chars = 0
  for (const message of messages) {
    chars += messageJson(message).length
    if (typeof message.content === 'string' || !message.content) continue
    for (const part of message.content) {
      if (part.type === 'image_url') chars += tokensPerImage * charsPerToken - part.image_url.url.length
    }
  }
  return tokensOfText(chars)
}

function tokensOfText(chars: number): number {
  return Math.ceil(chars / charsPerToken)
}

/**
 * US dollars per million tokens, as listed by the providers in mid 2026 for standard requests: no batch, priority or
 * long-context tiers. Prices change; a model's own `price` always wins, and a model that is not here costs "unknown",
 * never zero. Where `cachedInput` is missing, cached tokens are charged like others.
 */
const prices: Readonly<Record<string, Price>> = {
  sim: { input: 0, cachedInput: 0, output: 0 },

  'gpt-5': { input: 1.25, cachedInput: 0.125, output: 10 },
  'gpt-5.1': { input: 1.25, cachedInput: 0.125, output: 10 },
  'gpt-5-mini': { input: 0.25, cachedInput: 0.025, output: 2 },
  'gpt-5-nano': { input: 0.05, cachedInput: 0.005, output: 0.4 },
  'gpt-4.1': { input: 2, cachedInput: 0.5, output: 8 },
  'gpt-4.1-mini': { input: 0.4, cachedInput: 0.1, output: 1.6 },
  'gpt-4.1-nano': { input: 0.1, cachedInput: 0.025, output: 0.4 },
  'gpt-4o': { input: 2.5, cachedInput: 1.25, output: 10 },
  'gpt-4o-mini': { input: 0.15, cachedInput: 0.075, output: 0.6 },
  o3: { input: 2, cachedInput: 0.5, output: 8 },
  'o4-mini': { input: 1.1, cachedInput: 0.275, output: 4.4 },

  // The prices of the 5.5 models date from autumn 2026. Writing to Anthropic's cache costs more than other input; that is not
  // counted.
  'claude-opus-5-5': { input: 4, cachedInput: 0.2, output: 20 },
  'claude-opus-5': { input: 5, cachedInput: 0.5, output: 25 },
  'claude-opus-4-8': { input: 5, cachedInput: 0.5, output: 25 },
  'claude-opus-4-7': { input: 5, cachedInput: 0.5, output: 25 },
  'claude-opus-4-6': { input: 5, cachedInput: 0.5, output: 25 },
  'claude-opus-4-5': { input: 5, cachedInput: 0.5, output: 25 },
  'claude-opus-4-1': { input: 15, cachedInput: 1.5, output: 75 },
  'claude-sonnet-5-5': { input: 2, cachedInput: 0.2, output: 10 },
  'claude-sonnet-5': { input: 2, cachedInput: 0.2, output: 10 },
  'claude-sonnet-4-6': { input: 3, cachedInput: 0.3, output: 15 },
  'claude-sonnet-4-5': { input: 3, cachedInput: 0.3, output: 15 },
  'claude-sonnet-4': { input: 3, cachedInput: 0.3, output: 15 },
  'claude-haiku-4-5': { input: 1, cachedInput: 0.1, output: 5 },

  'gemini-2.5-pro': { input: 1.25, output: 10 },
  'gemini-2.5-flash': { input: 0.3, output: 2.5 },
  'gemini-2.5-flash-lite': { input: 0.1, output: 0.4 },
}

/** What may follow a known name: a date, as in `gpt-4o-2024-08-06`, or `-latest`. `gpt-5-pro` is another model. */
const sameModel = /^(-\d{4}.*|-latest)?$/

/** The price of a model by its name, with or without the provider before it; the longest known name wins. */
export function priceOf(model: string): Price | undefined {
  const name = model.slice(model.lastIndexOf('/') + 1)
  let best = ''
  for (const known of Object.keys(prices)) {
    if (known.length > best.length && name.startsWith(known) && sameModel.test(name.slice(known.length))) best = known
  }
  return best === '' ? undefined : prices[best]
}

export function modelPrice({ name, upstreamName = name, price, simulator }: ModelConfig): Price | undefined {
  return price ?? priceOf(simulator ? 'sim' : upstreamName)
}
