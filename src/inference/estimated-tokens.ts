import type { Message } from '../schema/index.ts'
import { messageJson } from './wire/message-json.ts'

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

export function tokensOfText(chars: number): number {
  return Math.ceil(chars / charsPerToken)
}
