import { MillraceError } from '../errors/index.ts'
import type { Source } from './wire/source.ts'

const whoCan =
  'Those that can: vLLM and SGLang; servers of Responses such as OpenAI’s, if the model is configured with api: responses; servers of Messages such as Anthropic’s, with api: messages; and the simulator.'

/** The error if no backend of the model is of a kind that counts. An estimate would be taken for a count, so none is made. */
export function cannotCount(model: string): MillraceError {
  const message = `counting tokens is not possible with model ${model}: none of its backends is known to count them. ${whoCan}`
  return new MillraceError('model_rejected', message, { data: { status: 400, param: 'model' } })
}

/** The statuses of servers that do not have the path for counting. */
const lackingStatuses: ReadonlySet<unknown> = new Set([404, 405, 501])

/** Older SGLang counts only plain prompts, and reports a missing `prompt` if it is sent a conversation. */
const missesPrompt = /'missing', 'loc': \('body', 'prompt'\)/

/** Says that the server cannot count if its answer shows that it is too old to; returns other failures unchanged. */
export function countFailure(thrown: unknown, { backend, url, model }: Source): unknown {
  if (!(thrown instanceof MillraceError)) return thrown
  const { status } = thrown.data
  const said = String(thrown.data['said'] ?? '')
  // A server that does not know the model also answers 404, but names the model.
  const lacksPath = lackingStatuses.has(status) && !said.includes(model)
  if (!lacksPath && !missesPrompt.test(said)) return thrown
  const told = `counting tokens is not possible with this model: its server has no way to be asked. ${whoCan}`
  const message = `${url} answered ${String(status)}: it cannot be asked how many tokens a prompt has. ${whoCan}`
  return new MillraceError('model_rejected', message, {
    data: { backend, status: 400, param: 'model', said: told },
    cause: thrown,
  })
}
