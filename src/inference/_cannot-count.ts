import { MillraceError } from '../errors/index.ts'
import type { Source } from './wire/source.ts'

const whoCan =
  'Those that can: vLLM and SGLang; servers of Responses such as OpenAI’s, if the model is configured with api: responses; servers of Messages such as Anthropic’s, with api: messages; and the simulator.'

/** No backend of the model is of a kind that could be asked. An estimate would be taken for a count. */
export function cannotCount(model: string): MillraceError {
  const message = `counting tokens is not possible with model ${model}: none of its backends is known to count them. ${whoCan}`
  return new MillraceError('model_rejected', message, { data: { status: 400, param: 'model' } })
}

/** What servers answer that do not have a path. */
const lackingStatuses: ReadonlySet<unknown> = new Set([404, 405, 501])

/** Older SGLang counts texts only, and misses one in a conversation. */
const missesPrompt = /'missing', 'loc': \('body', 'prompt'\)/

/** A server that should be able to count may be too old for it. */
export function countFailure(thrown: unknown, { backend, url, model }: Source): unknown {
  if (!(thrown instanceof MillraceError)) return thrown
  const { status } = thrown.data
  const said = String(thrown.data['said'] ?? '')
  // One that does not know the model names it.
  const lacksPath = lackingStatuses.has(status) && !said.includes(model)
  if (!lacksPath && !missesPrompt.test(said)) return thrown
  const told = `counting tokens is not possible with this model: its server has no way to be asked. ${whoCan}`
  const message = `${url} answered ${String(status)}: it cannot be asked how many tokens a prompt has. ${whoCan}`
  return new MillraceError('model_rejected', message, {
    data: { backend, status: 400, param: 'model', said: told },
    cause: thrown,
  })
}
