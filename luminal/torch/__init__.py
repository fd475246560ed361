"""The PyTorch front end: a Dynamo backend, torch.export programs, and the ATen table behind both."""
