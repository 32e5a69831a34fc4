import { setImmediate as nextTurn } from 'node:timers/promises'
import { hash32 } from '../../../../src/kit/index.ts'
import { ScriptedServer, sendJson } from '../../inference/scripted-server.ts'
import type { Chance } from './fuzz.ts'

const replies = ['yes', 'no', 'yes and no', 'I do not know']
const end = 1

/** One word, one token; a message is its role, its words and an end. So a conversation that only grows has prompts that do. */
const tokensOf = (text: string): number[] => text.split(' ').map((word) => 10 + (hash32(word) % 50_000))

/**
 * A backend of few words, so that many replies are the same. No two samples are: all log-probabilities of one are its
 * number. Some break off.
 */
export function terseServer(chance: Chance): Promise<ScriptedServer> {
  let samples = 0
  return ScriptedServer.start(async (response, { body }) => {
    samples += 1
    const id = `chatcmpl-${samples}`
    const logprob = logprobOf(samples)
    const asked = JSON.parse(body) as { stream?: boolean; messages: readonly { role: string; content: string }[] }
    const promptIds = asked.messages.flatMap(({ role, content }) => [...tokensOf(`<${role}> ${content}`), end])
    promptIds.push(...tokensOf('<assistant>'))
    const text = chance.pick(replies)
    const words = text.split(' ')
    const breaksAfter = chance.is(0.06) ? chance.below(words.length) : Infinity
    const entry = (token: string): object => ({ token, logprob, bytes: null, top_logprobs: [] })
    const usage = { prompt_tokens: promptIds.length, completion_tokens: words.length + 1 }
    for (let turns = chance.below(4); turns > 0; turns -= 1) await nextTurn()
    if (!asked.stream) {
      const message = { role: 'assistant', content: text }
      const logprobs = { content: [...words, ''].map(entry) }
      const choice = { index: 0, message, finish_reason: 'stop', logprobs, token_ids: [...tokensOf(text), end] }
      if (breaksAfter === Infinity) sendJson(response, { id, choices: [choice], prompt_token_ids: promptIds, usage })
      else response.destroy()
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const send = (more: object): void => void response.write(`data: ${JSON.stringify({ id, ...more })}\n\n`)
    for (const [index, word] of words.entries()) {
      if (index === breaksAfter) {
        response.destroy()
        return
      }
      const delta = { content: index === 0 ? word : ` ${word}` }
      const tokens = { logprobs: { content: [entry(word)] }, token_ids: tokensOf(word) }
      send({
        choices: [{ index: 0, delta, finish_reason: null, ...tokens }],
        ...(index === 0 && { prompt_token_ids: promptIds }),
      })
      if (chance.is(0.7)) await nextTurn()
    }
    const last = { logprobs: { content: [entry('')] }, token_ids: [end] }
    send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop', ...last }] })
    send({ choices: [], usage })
    response.end('data: [DONE]\n\n')
  })
}

/** A number that a float32 holds exactly. */
function logprobOf(sample: number): number {
  return -sample / 1024
}
