import { defineEnvironment, judge, z } from 'millrace'

const questions = [
  { question: 'What is the capital of France?', reference: 'Paris' },
  { question: 'What is the capital of Japan?', reference: 'Tokyo' },
  { question: 'What is the capital of Kenya?', reference: 'Nairobi' },
  { question: 'What is the capital of Peru?', reference: 'Lima' },
  { question: 'What is the capital of Norway?', reference: 'Oslo' },
  { question: 'What is the capital of Canada?', reference: 'Ottawa' },
  { question: 'What is the capital of Australia?', reference: 'Canberra' },
  { question: 'What is the chemical symbol of gold?', reference: 'Au' },
  { question: 'What is the chemical symbol of iron?', reference: 'Fe' },
  { question: 'What is the chemical symbol of sodium?', reference: 'Na' },
  { question: 'What is the chemical symbol of lead?', reference: 'Pb' },
  { question: 'Who wrote Hamlet?', reference: 'William Shakespeare' },
  { question: 'Who wrote Emma?', reference: 'Jane Austen' },
  { question: 'Who wrote Dracula?', reference: 'Bram Stoker' },
  { question: 'Which is the largest planet of the solar system?', reference: 'Jupiter' },
  { question: 'Which is the hottest planet of the solar system?', reference: 'Venus' },
  { question: 'How many legs does a spider have?', reference: '8' },
  { question: 'How many legs does an ant have?', reference: '6' },
]

/** Answers in free text, scored by a model: the run's judge if it has one, otherwise the model itself. */
export default defineEnvironment({
  name: 'judged-answers',
  description: 'Short factual questions, scored by a judge',
  task: z.object({ question: z.string(), reference: z.string() }),
  tasks: () => questions,
  prompt: ({ task }) => [
    { role: 'system', content: 'Answer in one short sentence.' },
    { role: 'user', content: task.question },
  ],
  reward: {
    agrees: judge({
      question: ({ task }) => task.question,
      reference: ({ task }) => task.reference,
      rubric: 'The answer must name what the reference names. Its wording does not matter.',
    }),
    words: { weight: 0, score: ({ answer }) => answer.split(/\s+/).length },
  },
})
