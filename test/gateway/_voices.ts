import type { ApiName } from '../../src/schema/index.ts'
import { ChatVoice } from './_chat-voice.ts'
import { MessagesVoice } from './_messages-voice.ts'
import { ResponsesVoice } from './_responses-voice.ts'
import type { Voice } from './_voice.ts'

export const voices: Readonly<Record<ApiName, Voice>> = {
  chat: new ChatVoice(),
  responses: new ResponsesVoice(),
  messages: new MessagesVoice(),
}

export const apiNames = ['chat', 'responses', 'messages'] as const
