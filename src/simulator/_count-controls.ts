import { chatServer, messagesServer, responsesServer, type CountingDialect } from '../dialects/index.ts'
import { countPaths } from '../schema/index.ts'
import { readWhole } from './_dialect-api.ts'
import type { Control, ControlCall, Controls } from './_control.ts'
import { promptTokens, textOfTools } from './_digest.ts'
import { promptIds } from './_token-record.ts'
import { textIds } from './_token-stream.ts'

/** The endpoint that counts the tokens of a Messages request. */
export const countMessages: Controls = { [`POST /v1${countPaths.messages}`]: counted(messagesServer.counting) }

export const countResponses: Controls = { [`POST /v1${countPaths.responses}`]: counted(responsesServer.counting) }

function counted(dialect: CountingDialect): Control {
  return ({ body }) => dialect.whole(promptTokens(readWhole(dialect, body)))
}

/** The tokens of a prompt, or of a conversation as the chat template writes it. */
export function tokenize({ simulator, body }: ControlCall): object {
  const tokens = Array.from(idsOf(body))
  const { contextLength } = simulator.settings
  return { count: tokens.length, tokens, ...(contextLength > 0 && { max_model_len: contextLength }) }
}

function idsOf(body: ControlCall['body']): Int32Array {
  if (typeof body['prompt'] === 'string') return textIds(body['prompt'])
  const { messages, tools } = chatServer.read({ model: 'any', ...body })
  return promptIds(messages, textOfTools(tools))
}
