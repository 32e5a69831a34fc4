import type { JudgeRequest } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { briefValue, isMessageList, requestProblem } from './request-problem.ts'

const requestNames: Readonly<Record<keyof JudgeRequest, true>> = {
  messages: true,
  model: true,
  temperature: true,
  maxTokens: true,
}

/** Throws `env_invalid`: a backend would be asked again and again, and blamed. */
export function checkJudgeRequest(request: JudgeRequest): void {
  const problem = requestProblem(request, requestNames) ?? messagesProblem(request)
  if (problem === undefined) return
  // Two things have that name, and a rubric is what the other one takes.
  const advice =
    "a context's judge takes { messages, … } and resolves to a message; judge({ rubric }) of millrace is a reward"
  throw new MillraceError('env_invalid', `judge(): ${problem}; ${advice}`)
}

function messagesProblem({ messages }: JudgeRequest): string | undefined {
  return isMessageList(messages) ? undefined : `\`messages\` must be a list of messages, not ${briefValue(messages)}`
}
