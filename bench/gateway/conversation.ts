/** What is said: a conversation whose messages have half a kilobyte each, and the replies to it. */

const messageChars = 512

export const replyText = sized('Because of that, the mill wheel turns and the water goes on down the race. ')

/** Events of a streamed reply with a piece of its text in them. */
export const streamEvents = 200

/** Each piece says when it was sent, in microseconds of the machine's clock, so that whoever gets it can tell its age. */
export const stampMark = 'sent-at-'
export const stampDigits = 15

export function microsecondsNow(): number {
  return Number(process.hrtime.bigint() / 1000n)
}

/** The body of the given turn, with everything said before it. */
export function requestBody(turn: number, options: { readonly stream: boolean; readonly asksTokens: boolean }): string {
  const messages: string[] = []
  for (let each = 1; each <= turn; each += 1) {
    messages.push(JSON.stringify({ role: 'user', content: sized(`Question ${each}: why does the wheel turn? `) }))
    if (each < turn) messages.push(JSON.stringify({ role: 'assistant', content: replyText }))
  }
  const wishes = [
    ...(options.stream ? ['"stream":true'] : []),
    ...(options.asksTokens ? ['"logprobs":true', '"return_token_ids":true'] : []),
    '"model":"bench"',
  ]
  return `{${wishes.join(',')},"temperature":0.7,"max_tokens":256,"messages":[${messages.join(',')}]}`
}

function sized(text: string): string {
  return text.repeat(Math.ceil(messageChars / text.length)).slice(0, messageChars)
}
